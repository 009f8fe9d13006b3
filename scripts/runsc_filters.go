// Writes Go code with the seccomp programs that runsc else compiles whenever a sandbox starts, as gVisor's own releases
// have them built in. get-runsc runs it inside a module that requires gVisor, and builds runsc with what it prints.
package main

import (
	"fmt"
	"os"

	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

const head = `package filter

import (
	"maps"
	"slices"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

const PrecompilationDisabledAtBuildTime = false

func GetPrecompiled(programName string) (precompiledseccomp.Program, bool) {
	program, ok := precompiledPrograms()[programName]
	return program, ok
}

func ListPrecompiled() []string {
	return slices.Sorted(maps.Keys(precompiledPrograms()))
}

func precompiledPrograms() map[string]precompiledseccomp.Program {
	programs := make(map[string]precompiledseccomp.Program)
`

func main() {
	programs, err := config.PrecompiledPrograms()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(head)
	for _, program := range programs {
		fmt.Print(program.Registration("\t", "precompiledseccomp", "programs"))
	}
	fmt.Print("\treturn programs\n}\n")
}
